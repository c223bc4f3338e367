"""What others do in the same minute on the same machine.

`queues`, `brokers` and `commands` run with Headway's interpreter and start the rest. The modules that end in `_side`
run with a peer's own, so they import nothing but the standard library, that peer, and `bench`'s plain modules.
"""
