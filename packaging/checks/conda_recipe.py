"""Renders the recipe of conda: with rattler-build's Python package if there is one (exit code 0), else as YAML with the fields
that conda-forge wants (77: only so far).

    python3 packaging/checks/conda_recipe.py packaging/conda/recipe.yaml
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(recipe: str) -> int:
    try:
        from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig
    except ImportError:
        return without_rattler_build(recipe)
    with open(recipe, encoding="utf-8") as text:
        parsed = Stage0Recipe.from_yaml(text.read())
    platform = PlatformConfig(target_platform="linux-64", build_platform="linux-64", host_platform="linux-64")
    variants = VariantConfig.from_file(str(Path(recipe).with_name("variants.yaml")))
    for variant in parsed.render(variants, RenderConfig(platform=platform)):
        made = variant.recipe.to_dict()
        print(made["package"], made["build"]["string"], made["requirements"], sep="\n")
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
