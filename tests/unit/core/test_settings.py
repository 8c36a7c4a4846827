import os

from asrnorm.core.settings import count_cores


def test_only_cores_that_the_process_may_use_are_counted(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert count_cores() == 2


def test_where_the_system_does_not_say_all_are(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    for there, counted in ((64, 64), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda there=there: there)
        assert count_cores() == counted
