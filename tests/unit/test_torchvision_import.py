import subprocess
import sys


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_torchvision_imports_beside_this_torch_and_stays_imported():
    run(
        "import gc\n"
        "from fedcome_ray.torchvision_import import torchvision_datasets\n"
        "first = torchvision_datasets(); gc.collect()\n"
        "assert torchvision_datasets() is first\n"
        "import torchvision, torch\n"
        "assert first.MNIST and torch.ops.torchvision.nms\n"
    )


def test_a_torchvision_that_imports_is_left_alone():
    run(
        "import sys, types\n"
        "fine = types.ModuleType('torchvision'); fine.datasets = types.ModuleType('datasets')\n"
        "sys.modules.update({'torchvision': fine, 'torchvision.datasets': fine.datasets})\n"
        "from fedcome_ray import torchvision_import\n"
        "assert torchvision_import.torchvision_datasets() is fine.datasets\n"
        "assert not torchvision_import._declared\n"
    )
