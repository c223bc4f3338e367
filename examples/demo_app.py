"""An app to try Headway with.

Beside `headway dev --app examples.demo_app:app`, run `python -m examples.demo_app`. (With -m, so that the
functions have the same name here and on the worker.)
"""

import headway

app = headway.App("demo")


@app.task(tier="basic", delay_tolerance="5s", execution_cap="1m", retry=headway.Retry(max_attempts=3))
def greet(name: str) -> str:
    return f"hello {name}"


@app.task
def square(n: int) -> int:
    return n * n


if __name__ == "__main__":
    print(greet("you"), "(here)")
    print(greet.submit("you").result(timeout=10), "(on a worker)")
    print(sum(square.map(range(1_000)).results(timeout=60)))
