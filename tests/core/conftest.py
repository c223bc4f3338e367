"""Properties are tried with the same cases in every run, and none is judged by how long a busy machine took over it."""

from hypothesis import settings

from tests.core.cases import TIMES

settings.register_profile("core", deadline=None, derandomize=TIMES == 1)
settings.load_profile("core")
