#!/bin/sh
# Installs uncore-trace from the archive of a release: programs, manual pages and completions. The archive must have
# the digest that SHA256SUMS of the same release names. Either all files are installed, or nothing is changed. A kill
# may leave files that end with `.new.SUFFIX` or `.old.SUFFIX`, but no half of a file.
#
# Only the last lines act, so a copy of which the end is missing does nothing.
set -eu

# The version and the repository of Cargo.toml.
version=0.1.0
repository=https://uncore-trace.invalid/uncore-trace

newline='
'
# The directory for downloads, and for the lists of what was changed.
work=
is_installed=

print_usage() {
    cat <<END
Usage: install.sh [--prefix DIR] [--from ADDRESS]

Installs uncore-trace: the programs, manual pages, and completions for bash, zsh and fish.

Options:
  --prefix DIR    Install below this directory [default: /usr/local]
  --from ADDRESS  URL or directory with the files of a release [env: UNCORE_TRACE_RELEASE]
                  [default: $repository/releases/download/v$version]
  --help          Print this help
END
}

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 2
}

# Fails with the last line of what a program printed.
fail_because() {
    reason=$(printf '%s\n' "$2" | tail -n 1)
    fail "$1${reason:+: $reason}"
}

parse_arguments() {
    prefix=/usr/local
    release=${UNCORE_TRACE_RELEASE:-$repository/releases/download/v$version}
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h)
            print_usage
            exit 0
            ;;
        --prefix | --from)
            [ $# -gt 1 ] || fail "$1 needs a value"
            option=$1 value=$2
            shift
            ;;
        --prefix=* | --from=*)
            option=${1%%=*} value=${1#*=}
            ;;
        *)
            fail "there is no option $1: try --help"
            ;;
        esac
        [ -n "$value" ] || fail "$option needs a value"
        case $option in
        --prefix) prefix=$value ;;
        --from) release=$value ;;
        esac
        shift
    done
    case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
    esac
    # Lists of files have one name in each line.
    case $prefix in
    *"$newline"*) fail "the directory of --prefix has a newline in its name" ;;
    esac
}

# Sets `machine` to the architecture in the names of archives.
check_machine() {
    kernel=$(uname -s)
    [ "$kernel" = Linux ] || fail "uncore-trace runs on Linux, and this is $kernel"
    machine=$(uname -m)
    case $machine in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no release for $machine, only for x86_64 and aarch64" ;;
    esac
    for tool in awk find gzip mktemp sha256sum sort tail tar; do
        command -v "$tool" >/dev/null || fail "$tool is not installed"
    done
}

# Fails before anything is downloaded.
check_prefix() {
    existing=$prefix
    while [ ! -e "$existing" ]; do
        existing=$(dirname -- "$existing")
    done
    [ -d "$existing" ] || fail "$existing is not a directory"
    [ -w "$existing" ] ||
        fail "cannot write to $existing: run this as root, or choose another directory with --prefix"
}

# Copies a file of the release into the directory of downloads.
fetch_file() {
    source=$release/$1
    case $source in
    *://*)
        if command -v curl >/dev/null; then
            output=$(curl --fail --silent --show-error --location --connect-timeout 30 \
                --output "$work/$1" "$source" 2>&1) ||
                fail_because "cannot download $source" "$output"
        elif command -v wget >/dev/null; then
            output=$(wget -q -O "$work/$1" "$source" 2>&1) ||
                fail_because "cannot download $source" "$output"
        else
            fail "neither curl nor wget is installed"
        fi
        ;;
    *)
        [ -f "$source" ] || fail "there is no file $source"
        output=$(cp -- "$source" "$work/$1" 2>&1) || fail_because "cannot copy $source" "$output"
        ;;
    esac
}

# Sets `archive` to the name of the archive for this machine.
fetch_archive() {
    fetch_file SHA256SUMS
    found=$(awk -v ending="-$machine.tar.gz" '
        index($2, "uncore-trace-") == 1 && !index($2, "/") &&
            substr($2, length($2) - length(ending) + 1) == ending { print $1, $2 }
    ' "$work/SHA256SUMS")
    case $found in
    '') fail "$release has no archive for $machine in its SHA256SUMS" ;;
    *"$newline"*) fail "$release has several archives for $machine in its SHA256SUMS" ;;
    esac
    archive=${found#* }
    fetch_file "$archive"
    digest=$(sha256sum <"$work/$archive")
    digest=${digest%% *}
    [ "$digest" = "${found%% *}" ] ||
        fail "$archive is not the file of SHA256SUMS: its digest is $digest, not ${found%% *}"
}

# Sets `tree` to the directory of the unpacked archive, which has the layout of a prefix.
unpack_archive() {
    mkdir "$work/unpacked" || fail "cannot write to $work"
    output=$(tar -xzf "$work/$archive" -C "$work/unpacked" 2>&1) ||
        fail_because "cannot unpack $archive" "$output"
    tree=$work/unpacked/${archive%.tar.gz}
    for path in bin/uncore-trace share; do
        [ -e "$tree/$path" ] || fail "$archive has no $path"
    done
}

# Writes a line into a list of changes, before the change: what is not listed cannot be undone.
note_change() {
    printf '%s\n' "$2" 2>/dev/null >>"$work/$1" || fail "cannot write to $work"
}

# Creates a directory and those above it.
make_directory() {
    [ ! -d "$1" ] || return 0
    make_directory "$(dirname -- "$1")"
    note_change made "$1"
    output=$(mkdir -- "$1" 2>&1) || fail_because "cannot create $1" "$output"
}

# Copies all files beside their places: what fails, for lack of space or rights, fails here.
copy_files() {
    (cd "$tree" && find share bin -type f) >"$work/files" || fail "cannot list the files of $archive"
    while IFS= read -r file; do
        target=$prefix/$file
        make_directory "$(dirname -- "$target")"
        [ ! -d "$target" ] || fail "$target is a directory"
        mode=644
        case $file in bin/*) mode=755 ;; esac
        note_change copied "$target"
        # A link that somebody else put there is not followed.
        output=$(rm -f -- "$target.new.$suffix" 2>&1 && cp -- "$tree/$file" "$target.new.$suffix" 2>&1 &&
            chmod "$mode" "$target.new.$suffix" 2>&1) || fail_because "cannot write $target" "$output"
    done <"$work/files"
}

# Moves the copies to their places, and keeps what was there until all are.
replace_files() {
    # Between the first and the last of them is no place to stop.
    trap '' HUP INT QUIT PIPE TERM
    while IFS= read -r target; do
        if [ -e "$target" ] || [ -L "$target" ]; then
            output=$(rm -f -- "$target.old.$suffix" 2>&1 && cp -pP -- "$target" "$target.old.$suffix" 2>&1) ||
                fail_because "cannot replace $target" "$output"
            note_change replaced "$target"
        else
            note_change added "$target"
        fi
        output=$(mv -f -- "$target.new.$suffix" "$target" 2>&1) ||
            fail_because "cannot replace $target" "$output"
    done <"$work/copied"
    is_installed=yes
}

# Undoes what was not finished, and removes the downloads.
clean_up() {
    [ -n "$work" ] || return 0
    trap '' HUP INT QUIT PIPE TERM
    set +e
    if [ -z "$is_installed" ]; then
        while IFS= read -r target; do mv -f -- "$target.old.$suffix" "$target"; done <"$work/replaced"
        while IFS= read -r target; do rm -f -- "$target"; done <"$work/added"
    fi
    while IFS= read -r target; do rm -f -- "$target.new.$suffix" "$target.old.$suffix"; done <"$work/copied"
    if [ -z "$is_installed" ]; then
        # The reverse order has directories before those that contain them.
        LC_ALL=C sort -r "$work/made" | while IFS= read -r directory; do
            rmdir -- "$directory" 2>/dev/null
        done
    fi
    rm -rf -- "$work"
}

main() {
    parse_arguments "$@"
    check_machine
    check_prefix
    umask 022
    trap clean_up EXIT
    trap 'exit 2' HUP INT QUIT PIPE TERM
    work=$(mktemp -d 2>/dev/null) || fail "cannot create a temporary directory"
    suffix=${work##*.}
    for list in made copied replaced added; do
        : >"$work/$list"
    done
    fetch_archive
    unpack_archive
    copy_files
    replace_files
    installed=${archive#uncore-trace-}
    printf 'uncore-trace %s is installed: %s\n' "${installed%-"$machine".tar.gz}" "$prefix/bin/uncore-trace"
}

{
    main "$@"
}
