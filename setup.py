"""The packages of the distribution: `fxrewrite` as it lies, and two top-level folders under longer names."""

from setuptools import find_packages, setup

FOLDERS = {"fxrewrite_kernels": "kernels", "fxrewrite_patterns": "patterns"}

packages = find_packages(include=["fxrewrite", "fxrewrite.*"])
for name, folder in FOLDERS.items():
    packages += [name, *(f"{name}.{inner}" for inner in find_packages(folder))]

setup(packages=packages, package_dir=FOLDERS)
