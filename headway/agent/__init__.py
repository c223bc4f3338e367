"""The program on a node: it takes assignments from its pool's leader, runs them, and says how they ended.

The promise: what it runs it can prove it owns. It keeps a lease that counts from when a heartbeat was sent;
when the lease runs out, everything it runs is dead before the leader may start it elsewhere. It holds no
database credentials, survives restarts of the server with its attempts running, repeats endings until they
are acknowledged, and leaves no process behind, not even when it is killed.

    agent.py      `Agent`, `AgentSettings`: the public face and the order of start and stop
    session.py    one WebSocket to the leader: hello, heartbeats, frames in and out
    lease.py      how long the agent may believe what it owns
    outbox.py     what the leader must still be told
    executor.py   the queue of assignments, what fits, who runs it
    window.py     how many assignments to hold beyond those that fit
    runners/      how a process, a script and a function are run

Nothing is imported here: a worker process imports this package and must stay small.
"""
