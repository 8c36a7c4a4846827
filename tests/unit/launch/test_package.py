import subprocess
import sys


def test_the_launcher_starts_without_torch_or_ray():
    code = "import sys, asrnorm.launch, asrnorm.launch.view, asrnorm.launch.ray_cluster; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'torch'" not in loaded
    assert "'ray'" not in loaded
