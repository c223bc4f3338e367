"""The lines in memory, against a plain model."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.core.queue import LineKey, ReadyQueue, ReadyTask

keys = st.builds(LineKey, st.integers(1, 2), st.integers(0, 3), st.integers(1, 2))
tasks = st.builds(ReadyTask, st.integers(0, 9).map(float), st.integers(0, 2), st.integers(0, 200))


class QueueMachine(RuleBasedStateMachine):
    """Offers, takes and drops in any order; the model is a dict of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ReadyQueue()
        self.model: dict[LineKey, set[ReadyTask]] = {}

    def held(self) -> set[int]:
        return {task.id for line in self.model.values() for task in line}

    @rule(key=keys, offered=st.lists(tasks, max_size=5, unique_by=lambda task: task.id))
    def offer(self, key: LineKey, offered: list[ReadyTask]) -> None:
        fresh = {task for task in offered if task.id not in self.held()}
        assert self.queue.offer(key, offered) == len(fresh)
        self.model.setdefault(key, set()).update(fresh)

    @rule(lane=st.integers(0, 3), count=st.integers(1, 4))
    def take_from_the_line_due_first(self, lane: int, count: int) -> None:
        lines = {key: line for key, line in self.model.items() if key.lane == lane and line}
        line = self.queue.next_line(lane)
        if line is None:
            assert not lines
            return
        assert min(task.start_by for held in lines.values() for task in held) == line.first.start_by
        count = min(count, len(line))
        assert self.queue.take(line, count) == sorted(lines[line.key])[:count]
        self.model[line.key] -= set(sorted(lines[line.key])[:count])
        self.queue.put_back(line)

    @rule(gone=st.frozensets(st.integers(0, 200), max_size=20))
    def drop(self, gone: frozenset[int]) -> None:
        self.queue.drop(gone)
        self.model = {key: {task for task in line if task.id not in gone} for key, line in self.model.items()}

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.queue) == len(self.held())
        assert {line.key: len(line) for line in self.queue.lines()} == {k: len(v) for k, v in self.model.items() if v}


TestQueue = QueueMachine.TestCase
