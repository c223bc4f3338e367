"""The planner: order, room, and nothing hidden or promised twice."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.lifecycle import Lane
from headway.core.placement import NodeRoom, Nodes, Shape
from headway.core.plan import Placement, plan
from headway.core.queue import LineKey, ReadyQueue, ReadyTask

SMALL, BIG, CALL = 1, 2, 3
SHAPES = {
    SMALL: Shape("command", {"cpu": 500}, "basic"),
    BIG: Shape("command", {"cpu": 4000}, "premium"),
    CALL: Shape("function", {"workers": 1}, "basic", "shop:charge"),
}


def a_node(number: int, *, cpu: int = 1000, workers: int = 0, window: int = 0) -> NodeRoom:
    return NodeRoom(
        number,
        f"n{number}",
        capacity={"cpu": cpu, "workers": workers},
        kinds=["command", "function"],
        functions=["shop:charge"],
        windows={"command": window, "function": window},
    )


def a_pool(*rooms: NodeRoom) -> Nodes:
    nodes = Nodes()
    for number, shape in SHAPES.items():
        nodes.learn(number, shape)
    for room in rooms:
        nodes.join(room)
    return nodes


def a_queue(*waiting: tuple[Lane, int, float, int]) -> ReadyQueue:
    queue = ReadyQueue()
    for lane, shape, start_by, task in waiting:
        queue.offer(LineKey(1, lane, shape), [ReadyTask(start_by, 1000, task)])
    return queue


def ids(placed: list[Placement]) -> list[int]:
    return [task.id for placement in placed for task in placement.tasks]


def test_the_earliest_start_by_goes_first():
    queue = a_queue((Lane.NORMAL, SMALL, 30.0, 3), (Lane.NORMAL, SMALL, 10.0, 1), (Lane.NORMAL, SMALL, 20.0, 2))
    assert ids(plan(queue, a_pool(a_node(1)), most=10)) == [1, 2]


def test_an_urgent_task_overtakes_a_normal_one_that_is_due_earlier():
    queue = a_queue((Lane.NORMAL, SMALL, 1.0, 1), (Lane.URGENT, SMALL, 99.0, 2))
    assert ids(plan(queue, a_pool(a_node(1, cpu=500)), most=10)) == [2]


def test_a_task_that_fits_nowhere_hides_nobody():
    queue = a_queue((Lane.NORMAL, BIG, 1.0, 1), (Lane.NORMAL, SMALL, 2.0, 2))
    assert ids(plan(queue, a_pool(a_node(1)), most=10)) == [2]
    assert len(queue) == 1


def test_a_window_is_filled_beyond_what_fits_and_no_further():
    queue = a_queue(*[(Lane.NORMAL, CALL, float(n), n) for n in range(20)])
    nodes = a_pool(a_node(1, workers=2, window=5))
    assert len(ids(plan(queue, nodes, most=100))) == 7
    nodes.vacate(1, CALL, 3)
    assert len(ids(plan(queue, nodes, most=100))) == 3


def test_windows_are_shared_evenly_after_what_starts_at_once():
    queue = a_queue(*[(Lane.NORMAL, CALL, float(n), n) for n in range(8)])
    placed = plan(queue, a_pool(a_node(1, workers=2, window=50), a_node(2, workers=2, window=50)), most=100)
    assert sorted(len(p.tasks) for p in placed) == [4, 4]


def test_a_function_goes_only_where_it_is_served():
    deaf = NodeRoom(1, "n1", capacity={"workers": 4}, kinds=["function"], functions=[], windows={})
    assert plan(a_queue((Lane.NORMAL, CALL, 1.0, 1)), a_pool(deaf), most=10) == []


def test_no_more_is_planned_than_asked_for():
    queue = a_queue(*[(Lane.NORMAL, SMALL, float(n), n) for n in range(9)])
    assert len(ids(plan(queue, a_pool(a_node(1, cpu=100_000)), most=4))) == 4
    assert len(queue) == 5


waiting = st.lists(
    st.tuples(st.sampled_from(list(Lane)), st.sampled_from(list(SHAPES)), st.floats(0, 100)), max_size=60
).map(lambda rows: [(*row, number) for number, row in enumerate(rows)])
rooms = st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 4), st.integers(0, 6)), max_size=5)


@given(waiting, rooms, st.integers(1, 50))
def test_a_plan_places_each_task_at_most_once_and_never_beyond_the_room(
    tasks: list[tuple[Lane, int, float, int]], sizes: list[tuple[int, int, int]], most: int
):
    queue = a_queue(*tasks)
    offered = [a_node(n, cpu=cpu, workers=w, window=window) for n, (cpu, w, window) in enumerate(sizes, 1)]
    placed = plan(queue, a_pool(*offered), most=most)
    started = ids(placed)
    assert len(started) == len(set(started)) <= most
    assert len(queue) + len(started) == len(tasks)
    for room in offered:
        here = [p for p in placed if p.node == room.node]
        for kind in ("command", "function"):
            wanted = sum(len(p.tasks) for p in here if SHAPES[p.key.shape].kind == kind)
            cheapest = 1 if kind == "function" else 500
            fits = room.capacity["workers" if kind == "function" else "cpu"] // cheapest
            assert wanted <= fits + room.windows[kind]


@given(waiting)
def test_within_a_line_the_order_is_kept(tasks: list[tuple[Lane, int, float, int]]):
    placed = plan(a_queue(*tasks), a_pool(a_node(1, cpu=10**6, workers=100)), most=1000)
    for key in {p.key for p in placed}:
        line = [task for p in placed if p.key == key for task in p.tasks]
        assert line == sorted(line)
    assert len(ids(placed)) == len(tasks)
