#!/bin/sh
# Tests the Python package with the program that LONGHAUL_BIN names. Copies need Python alone. With `all`, also types,
# installation and fsspec's tests of a file system: some minutes, and SKIPPED where pip cannot install packages.
# `longhaul.advice` has its tests with the other clients of the advice service: bindings/test.sh.
set -eu
cd "$(dirname "$0")"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp -r . "$place/python"
export PYTHONDONTWRITEBYTECODE=1

(cd "$place/python/tests" && PYTHONPATH=../src python3 -W error -m unittest test_copy test_program)
echo "ok copies"
if [ "${1:-}" != all ]; then
    exit 0
fi

if ! { python3 -m venv "$place/venv" && "$place/venv/bin/pip" -q --disable-pip-version-check install \
    'hatchling>=1.27' fsspec pytest pytest-xdist mypy; } >"$place/log" 2>&1; then
    echo "SKIPPED types, installation and fsspec's tests: $(tail -n 1 "$place/log")"
    exit 0
fi
"$place/venv/bin/pip" -q --disable-pip-version-check install "$place/python[fsspec]"
echo "ok installation"
"$place/venv/bin/mypy" --config-file pyproject.toml --cache-dir="$place/mypy" --python-executable "$place/venv/bin/python" \
    src tests/test_advice.py tests/test_program.py
(cd "$place/python/tests" && "$place/venv/bin/python" -m pytest -q -n 4 -p no:cacheprovider test_copy.py test_filesystem.py)
echo "ok file system"
