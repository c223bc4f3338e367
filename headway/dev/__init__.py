"""`headway dev`: database, server and agent on this machine, under one small supervisor.

Part of the composition root: beside headway.app, the only place that knows how the parts are put together.
"""
