# SPDX-License-Identifier: Apache-2.0
"""The kernel that JupyterLab starts for Python notebooks. No file describes it: nothing is installed or left behind."""

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpec, KernelSpecManager
from traitlets import Unicode


class KernelSpecs(KernelSpecManager):
    """Serves hopyard's kernel under Jupyter's name for the Python kernel, so that every Python notebook opens in it."""

    mode = Unicode("", config=True, help="The mode in the kernel's name.")

    def find_kernel_specs(self) -> dict[str, str]:
        return {**super().find_kernel_specs(), NATIVE_KERNEL_NAME: RESOURCES}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        if kernel_name != NATIVE_KERNEL_NAME:
            return super().get_kernel_spec(kernel_name)
        spec = KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())
        spec.argv = [*spec.argv, "--ext=hopyard._jupyter.kernel", "--log-level=ERROR"]
        spec.display_name = f"hopyard ({self.mode})"
        return spec
