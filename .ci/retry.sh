# Running a stage a second time. What measures a live machine may be disturbed by it at the wrong
# moment: the second run decides, the log has both, and `again` names what ran twice.

# What failed once and passed then, one a line.
passed_again=()

# Runs a command, and runs it again if it fails.
retry() {
    "$@" || {
        echo "failed, running again: $*" >&2
        "$@" && passed_again+=("$*")
    }
}

# The tests that have failed once and passed then, a line each: the first day, and the name.
twice=${TWICE:-.ci/twice.txt}

# Lists what failed once and passed then: the end of a log is read, its middle is not. Fails for a
# test that has been on the list for a week.
again() {
    local name day status=0
    for name in "${passed_again[@]}"; do
        echo "failed once and passed then: $name"
        day=$(_first_day "$name")
        if [[ -z $day ]]; then
            echo "add this line to $twice: $(date +%F) $name"
        elif [[ ! $(date +%F) < $(date -d "$day + 7 days" +%F) ]]; then
            echo "it is on the list of $twice since $day: mend the test, then remove the line" >&2
            status=1
        fi
    done
    return "$status"
}

# The day from which a test is on the list; empty if it is not.
_first_day() {
    while read -r day listed; do
        if [[ $listed == "$1" ]]; then
            echo "$day"
            return
        fi
    done <"$twice"
}

# Runs `cargo test ARGS`, and runs the tests that failed again, each test binary with those of its
# own. Where they cannot be named, all tests run again: a binary crashed or did not compile.
test_retry() {
    local log failed status
    log=$(mktemp)
    status=0
    _logged "$log" cargo test --no-fail-fast "$@" || status=$?
    if ((status)); then
        mapfile -t failed < <(_failed "$log")
        if ((${#failed[@]})) && _complete "$log"; then
            printf 'failed, running again: %s\n' "${failed[@]}" >&2
            status=0
            _logged "$log" cargo test --no-fail-fast "$@" -- --exact "${failed[@]}" || status=$?
            # A name that no binary knows would run nothing and succeed.
            if ((status == 0 && $(_sum passed "$log") < ${#failed[@]})); then
                echo "only $(_sum passed "$log") of ${#failed[@]} failed tests ran again" >&2
                status=1
            fi
            ((status)) || passed_again+=("${failed[@]}")
        else
            echo "failed, running all tests again" >&2
            status=0
            _logged "$log" cargo test --no-fail-fast "$@" || status=$?
            ((status)) || passed_again+=("all tests")
        fi
    fi
    rm -f "$log"
    return "$status"
}

# Runs a machine of the lab, and runs the scenarios of the steps that failed again. Where no step
# is named, the guest did not end, and all of them run again.
lab_retry() {
    local machine=$1 log status failed scenarios
    log=$(mktemp)
    status=0
    _logged "$log" cargo xtask lab "$machine" || status=$?
    if ((status)); then
        mapfile -t failed < <(sed -nE 's/^lab: ([^ :]+): [0-9]+ checks: FAILED$/\1/p' "$log")
        # The name of a step begins with that of its scenario.
        mapfile -t scenarios < <(printf '%s\n' "${failed[@]%%-*}" | sort -u | sed '/^$/d')
        echo "failed, running again: lab $machine ${failed[*]}" >&2
        status=0
        _logged "$log" cargo xtask lab "$machine" "${scenarios[@]/#/--scenario=}" || status=$?
        ((${#failed[@]})) || failed=(all)
        ((status)) || passed_again+=("${failed[@]/#/lab $machine }")
    fi
    rm -f "$log"
    return "$status"
}

# Runs a command; its output goes to the terminal and to a file.
_logged() {
    local log=$1
    shift
    CARGO_TERM_COLOR=never "$@" 2>&1 | tee "$log"
    return "${PIPESTATUS[0]}"
}

# The tests that failed, without what the harness appends to their names.
_failed() {
    sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$1" |
        sed -E 's/ - (should panic|compile fail|compile)$//'
}

# Whether each test binary that started also ended, and each failure has its name in the log.
_complete() {
    local started ended
    started=$(grep -cE '^ +(Running|Doc-tests) ' "$1")
    ended=$(grep -c '^test result: ' "$1")
    ((started == ended && $(_sum failed "$1") == $(_failed "$1" | wc -l)))
}

# How many tests `passed` or `failed`, in all binaries.
_sum() {
    sed -nE "s/^test result: .* ([0-9]+) $1;.*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'
}
