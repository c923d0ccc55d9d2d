#!/bin/sh
# Tests the client libraries of the Enable service in Python, C and Java against a scripted server, and with
# ENABLE_SERVER=HOST:PORT also against a real one. With ENABLE_TOKEN_FILE as well, the file of that server's token, the C
# library reports a structure to it, chooses tests of a client, reads both back, and asks for QoS with a rate. What lacks a
# program prints SKIPPED and the reason; with BINDINGS_REQUIRE_ALL=1 that is a failure. With BINDINGS_DOWNLOAD=0, the step
# that downloads packages (Maven) is left out. Arguments name the languages to test (default: all).
set -u
cd "$(dirname "$0")" || exit 1
failed=0
place="$(mktemp -d)" || exit 1
trap 'rm -rf "$place"' EXIT

has() {
    command -v "$1" >/dev/null 2>&1
}

skipped() {
    echo "SKIPPED $1: $2"
    if [ "${BINDINGS_REQUIRE_ALL:-0}" = 1 ]; then
        failed=1
    fi
}

downloads() {
    [ "${BINDINGS_DOWNLOAD:-1}" = 1 ]
}

# Runs a step and says how it ended; its output is shown only if it fails.
step() {
    name="$1"
    shift
    if "$@" >"$place/output" 2>&1; then
        echo "ok $name"
        grep 'SKIPPED' "$place/output"
        return 0
    fi
    cat "$place/output"
    echo "FAILED $name"
    failed=1
    return 1
}

# The module of the Python package, which bindings/longhaul/test.sh tests as a whole.
test_python() {
    step "python: tests" env PYTHONPATH=longhaul/src PYTHONDONTWRITEBYTECODE=1 \
        ./scripted_server.py -- python3 -W error -m unittest discover -s longhaul/tests -p test_advice.py
    step "python: command" env PYTHONPATH=longhaul/src PYTHONDONTWRITEBYTECODE=1 ./scripted_server.py -- sh -c \
        'test "$(python3 -m longhaul.advice "$ENABLE_SCRIPTED" --timeout 60 --buffer)" = 4194304'
}

test_c() {
    if ! has "${CC:-cc}" || ! has make; then
        skipped "c" "no C compiler or no make"
        return
    fi
    for library in libcurl jansson; do
        if ! pkg-config --exists "$library" 2>/dev/null; then
            skipped "c" "no pkg-config, or no headers of $library (Debian: libcurl4-openssl-dev, libjansson-dev)"
            return
        fi
    done
    step "c: tests" make -s -C c check BUILD="$place/c" CC="${CC:-cc}"
}

test_java() {
    if ! has java || ! has javac; then
        skipped "java" "no JDK"
        return
    fi
    # Word splitting is meant: no path here has a space.
    # shellcheck disable=SC2046
    step "java: compiler" javac -Xlint:all -Werror --release 11 -d "$place/classes" $(find java/src -name '*.java') &&
        step "java: tests" ./scripted_server.py -- java -cp "$place/classes" org.longhaul.enable.EnableClientTest
    # shellcheck disable=SC2046
    step "java: documentation" javadoc -quiet -Xdoclint:all -Werror --release 11 -d "$place/javadoc" \
        $(find java/src/main -name '*.java')
    downloads || return 0
    if ! has mvn; then
        skipped "java: Maven" "no mvn"
        return
    fi
    cp -r java "$place/java"
    if (cd "$place/java" && mvn -q -B package) >"$place/output" 2>&1; then
        step "java: Maven" test -f "$place/java/target/enable-0.1.0.jar"
    elif grep -q 'could not be resolved\|Could not transfer\|Cannot access\|was not found in' "$place/output"; then
        skipped "java: Maven" "its plugins cannot be downloaded"
    else
        step "java: Maven" sh -c "cat '$place/output'; exit 1"
    fi
}

if ! has python3; then
    skipped "all" "no python3, which runs the scripted server"
    exit "$failed"
fi
if [ -z "${ENABLE_SERVER:-}" ]; then
    echo "SKIPPED the conformance of a real server: ENABLE_SERVER is not set"
fi
for language in ${*:-python c java}; do
    case "$language" in
    python | c | java) "test_$language" ;;
    *)
        echo "unknown language: $language" >&2
        exit 2
        ;;
    esac
done
exit "$failed"
