#!/bin/sh
# Installs the library into a new folder and builds the example against it, shared and static, as C and as C++.
# Arguments: make and the C compiler.
set -eu
cd "$(dirname "$0")/.."
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
"$1" -s install BUILD="$place/build" DESTDIR="$place/root" PREFIX=/usr
library="$place/root/usr/lib"
test -f "$place/root/usr/share/man/man3/enable.3"
export PKG_CONFIG_PATH="$library/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$place/root"
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
# Word splitting is meant: these are several flags.
# shellcheck disable=SC2046
"$2" $(pkg-config --cflags enable) example.c $(pkg-config --libs enable) -o "$place/shared"
# shellcheck disable=SC2046
"$2" -I"$place/root/usr/include" example.c "$library/libenable.a" $(pkg-config --libs libcurl jansson) -o "$place/static"
for program in shared static; do
    code=0
    LD_LIBRARY_PATH="$library" "$place/$program" 'a b' 2>"$place/errors" || code=$?
    test "$code" = 5
    grep -q 'no advice server' "$place/errors"
done
readelf -d "$place/shared" | grep -q 'libenable.so.0'
# Only the functions of enable.h are visible.
nm -D --defined-only "$library/libenable.so" | awk '{ print $3 }' | sort >"$place/visible"
sed -n 's/^ENABLE_API .*\b\(enable_[a-z_]*\)(.*/\1/p' enable.h | sort >"$place/declared"
diff "$place/declared" "$place/visible"
if command -v c++ >/dev/null 2>&1; then
    printf '#include <enable.h>\nint main() { return enable_status_text(ENABLE_OK) == nullptr; }\n' >"$place/a.cc"
    # shellcheck disable=SC2046
    c++ -I"$place/root/usr/include" "$place/a.cc" "$library/libenable.a" $(pkg-config --libs libcurl jansson) -o "$place/cxx"
    "$place/cxx"
fi
echo "installed: ok"
