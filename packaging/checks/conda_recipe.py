"""Renders the recipe of conda for Linux and macOS: with rattler-build's Python package if there is one (exit code 0), else as
YAML with the fields that conda-forge wants (77: only so far). Prints what each is built of, and the commands.

    python3 packaging/checks/conda_recipe.py packaging/conda/recipe.yaml
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(recipe: str) -> int:
    try:
        from rattler_build import JinjaConfig, PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig
    except ImportError:
        return without_rattler_build(recipe)
    with open(recipe, encoding="utf-8") as text:
        parsed = Stage0Recipe.from_yaml(text.read())
    for title, name in (("Linux:", "linux-64"), ("macOS:", "osx-arm64")):
        platform = PlatformConfig(target_platform=name, build_platform=name, host_platform=name)
        context = JinjaConfig(platform=platform)
        variants = VariantConfig.from_file_with_context(str(Path(recipe).with_name("variants.yaml")), context)
        print(title)
        for variant in parsed.render(variants, RenderConfig(platform=platform)):
            made = variant.recipe.to_dict()
            print(made["package"], made["build"]["string"], made["requirements"], sep="\n")
            print(*made["build"]["script"], sep="\n")
    return 0


def without_rattler_build(recipe: str) -> int:
    try:
        import yaml
    except ImportError:
        print("SKIPPED neither py-rattler-build nor yaml of Python is here")
        return 77
    with open(recipe, encoding="utf-8") as text:
        made = yaml.safe_load(text)
    missing = {"context", "package", "source", "build", "requirements", "tests", "about"} - set(made)
    if missing:
        print("the recipe lacks", *missing)
        return 1
    print("SKIPPED rendering: py-rattler-build is missing; on any system: pip install py-rattler-build")
    return 77


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
