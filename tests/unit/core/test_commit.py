import subprocess

from asrnorm import __version__
from asrnorm.core import settings
from asrnorm.core.settings import find_commit


def test_the_commit_is_that_of_the_packages_own_repository(monkeypatch, tmp_path):
    monkeypatch.delenv(settings.COMMIT_VARIABLE, raising=False)
    package = tmp_path / "site-packages" / "asrnorm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(settings.asrnorm, "__file__", str(package / "__init__.py"))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "someone else's"], check=True)
    assert find_commit() == f"v{__version__}", "installed inside a repository that is not its own"
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "ours"], check=True)
    found = find_commit()
    assert len(found) == 40
    (package / "__init__.py").write_text("changed")
    assert find_commit() == f"{found}+"


def test_a_copied_tree_says_which_commit_it_is(monkeypatch):
    monkeypatch.setenv(settings.COMMIT_VARIABLE, "0123abc")
    assert find_commit() == "0123abc"


def test_without_git_the_version_stands_for_the_commit(monkeypatch):
    def missing(*args, **kwargs):
        raise FileNotFoundError("git")

    monkeypatch.delenv(settings.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(settings.subprocess, "run", missing)
    assert find_commit() == f"v{__version__}"


def test_a_shortened_commit_keeps_its_mark():
    long = "699d2a08edc286938191f4db09b9db7da0461f82+"
    assert [settings.shorten_commit(commit) for commit in (long, "47563b9+", "47563b9")] == [
        "699d2a08edc2+",
        "47563b9+",
        "47563b9",
    ]
