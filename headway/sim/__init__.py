"""The planner of a pool under a virtual clock: what would happen, before it happens.

Everything that decides is `headway.core`, the very code the leader runs; what is made up here is only the world around
it: who submits what and when, how long it takes, which nodes die. The same scenario and seed give the same answer.
"""
