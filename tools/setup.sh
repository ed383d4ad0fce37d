#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What hopyard needs from the system, in five sets:
#
#   tools/setup.sh build     to compile it (make setup, make demo)
#   tools/setup.sh test      for the suites (make test)
#   tools/setup.sh lint      to check sources (make lint)
#   tools/setup.sh coverage  to see what fuzzing reaches (make fuzz-coverage)
#   tools/setup.sh bench     what it is measured against (make bench)
#   tools/setup.sh python    prints the Python to use: 3.11 or newer
#
# Several sets may be named at once, so that one message lists everything that is missing.
# It looks for headers, libraries and programs, not for packages, and installs
# the packages of those that are missing.
set -euo pipefail

missing=()

# need PACKAGE COMMAND…: the package is missing when the command fails.
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

has() { command -v "$1" || [ -x "/usr/sbin/$1" ]; }
compiles_c() { echo '#include <stdio.h>' | cc -E -; }
compiles_mpi() { echo '#include <mpi.h>' | mpicc -fsyntax-only -x c -; } # with -E it passes no directories on
has_header() { echo "#include <$1>" | cc -E -; }
has_library() { pkg-config --exists "$1"; }
has_java() { java -version 2>&1 | grep -E 'version "(1[7-9]|[2-9][0-9])'; }
has_fuzzer() { echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
    clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null; }

has_coverage() { has llvm-cov && has llvm-profdata; }

find_python() {
    local python
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    echo "hopyard needs Python 3.11 or newer, and python3 here is $(python3 -V 2>/dev/null || echo missing);" \
        "install a newer one (Debian 12: apt-get install python3) and run make again." >&2
    exit 1
}

# On Debian venv and the headers are packages of their own.
need_python() {
    local python version
    python=$(find_python)
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    need "python$version-venv" "$python" -c 'import ensurepip, venv'
    need "python$version-dev" "$python" -c \
        'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))'
}

need_build() {
    need build-essential compiles_c
    need pkg-config has pkg-config
    need libuv1-dev has_library libuv
    need libssl-dev has_library openssl
    need libprotobuf-c-dev has_library libprotobuf-c
    need protobuf-c-compiler has protoc-c
    need libsqlite3-dev has_library sqlite3
    need libjansson-dev has_library jansson
    need libexpat1-dev has_library expat
    need zlib1g-dev has_library zlib
    need nodejs has node # both for the web page
    need npm has npm
    need libzstd-dev has_header zstd.h # a static OpenSSL asks for it, and for zlib, from Debian 13 on
    need_python
}

# The runtime of the fuzzer has clang's version in its name.
fuzzer_package() {
    local version
    version=$(clang -dumpversion 2>/dev/null ||
        apt-cache show clang 2>/dev/null | sed -n 's/^Version: \(.*:\)\?//p')
    version=${version%%[!0-9]*}
    echo "libclang-rt-${version:-14}-dev"
}

need_fuzz() {
    need libcmocka-dev has_header cmocka.h
    need clang has clang
    need "$(fuzzer_package)" has_fuzzer
}

need_coverage() {
    need_fuzz
    need llvm has_coverage
}

need_lint() {
    need cppcheck has cppcheck
}

need_test() {
    need_fuzz
    need openssh-client has ssh
    need openssh-server has sshd
    need iproute2 has ip
    need tmux has tmux
    need chromium has chromium
    need openssl has openssl
    need nginx-light has nginx # a proxy in front of the page
    need default-jre-headless has_java # Spark's and Hadoop's
    need maven has mvn
    need hostname has hostname
    need openmpi-bin has mpirun # starts ranks
    need util-linux has nsenter
    need krb5-kdc has krb5kdc
    need krb5-admin-server has kadmin.local
    need krb5-user has kinit
    need pypy3 has pypy3 # a Python of another version than ours
}

need_bench() {
    need parallel has parallel
    need procps has ps
    need openmpi-bin has mpirun
    need libopenmpi-dev compiles_mpi
    need iperf3 has iperf3
    need python3-torch /usr/bin/python3 -c 'import torch.distributed'
    need curl has curl
    need wrk has wrk
    need default-jdk-headless has javac # of HDFS, one peer is a Java program, and one is compiled with the headers of JNI
}

# Tests need the programs sshd, krb5kdc and nginx, not their services: packages may not start or enable them.
install_quietly() {
    local policy=/usr/sbin/policy-rc.d sudo=("$@")
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
        "${sudo[@]}" chmod +x "$policy"
        trap "${sudo[*]} rm -f $policy" EXIT
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
    if [[ " ${missing[*]} " == *" openssh-server "* ]]; then
        "${sudo[@]}" systemctl disable ssh.service ssh.socket >/dev/null 2>&1 || true
    fi
    if [[ " ${missing[*]} " == *" nginx-light "* ]]; then
        "${sudo[@]}" systemctl disable nginx.service >/dev/null 2>&1 || true
    fi
    if [[ " ${missing[*]} " == *" krb5-kdc "* ]]; then
        "${sudo[@]}" systemctl disable krb5-kdc.service krb5-admin-server.service >/dev/null 2>&1 || true
    fi
}

install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "installing ${missing[*]}"
        install_quietly env
    elif command -v apt-get >/dev/null && sudo -n true 2>/dev/null; then
        echo "installing ${missing[*]} (by sudo)"
        install_quietly sudo -n
    else
        cat >&2 <<END
hopyard needs packages that are not installed, and this user cannot install them. Run, as root,

    apt-get install ${missing[*]}

(or their names on your system), and then make again.
END
        exit 1
    fi
}

usage() {
    echo "usage: tools/setup.sh [build] [test] [lint] [coverage] [bench] | python" >&2
    exit 2
}

[ $# -gt 0 ] || usage
if [ "$1" = python ]; then
    find_python
    exit
fi
for set in "$@"; do
    case $set in
    build | test | lint | coverage | bench) "need_$set" ;;
    *) usage ;;
    esac
done
install_missing
