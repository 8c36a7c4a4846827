"""A stand-in for NVIDIA's control program, and for the first process under its daemon."""

from asrnorm.launch import mps as service

CONTROL = """#!/bin/sh
case "$1" in
  -d)
    echo "start $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY $CUDA_VISIBLE_DEVICES" >> {calls}
    {start}
    ( while sleep 0.02; do :; done ) < /dev/null > /dev/null 2>&1 &
    echo $! > "$CUDA_MPS_PIPE_DIRECTORY/pid"
    : > "$CUDA_MPS_PIPE_DIRECTORY/control"
    ;;
  *)
    read -r words
    echo "$words" >> {calls}
    case "$words" in
      quit*) {quit}; kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")" ;;
      get_server_list) {answer} ;;
    esac
    ;;
esac
"""


class FakeMps:
    """Puts the program on the PATH and makes all waiting short; what it is told is in `calls`."""

    def __init__(self, folder, monkeypatch):
        self._folder, self._monkeypatch = folder, monkeypatch
        self._calls = folder / "calls"
        self.write()
        self.set_probe("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        # sleep and friends come from where they are; nothing of NVIDIA's may, were it there.
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
        monkeypatch.delenv(service.VARIABLE, raising=False)
        monkeypatch.setattr(service, "_DEFAULT_PIPE", folder / "default")
        monkeypatch.setattr(service, "_QUIT_SECONDS", 2.0)

    def write(self, *, start=":", quit_=":", answer="echo 4711"):
        path = self._folder / "nvidia-cuda-mps-control"
        path.write_text(CONTROL.format(calls=self._calls, start=start, quit=quit_, answer=answer))
        path.chmod(0o755)

    def set_probe(self, text):
        path = self._folder / "probe.py"
        path.write_text(text)
        self._monkeypatch.setattr(service, "_PROBE", str(path))

    def calls(self):
        return self._calls.read_text().splitlines() if self._calls.exists() else []
