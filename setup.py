"""The packages of the distribution: `fxrewrite` as it lies, and two top-level folders under longer names."""

from setuptools import find_packages, setup

FOLDERS = {"fxrewrite": "fxrewrite", "fxrewrite_kernels": "kernels", "fxrewrite_patterns": "patterns"}

setup(
    packages=[
        package
        for name, folder in FOLDERS.items()
        for package in (name, *(f"{name}.{inner}" for inner in find_packages(folder)))
    ],
    package_dir=FOLDERS,
)
