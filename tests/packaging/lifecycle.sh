# Run as root in a guest with systemd and both packages in /packages: the life of each package, from its installation to
# its removal. Lines that begin with `check: ` are compared (xtask/src/dist/check/lifecycle.rs).
say() { echo "check: $step: $*"; }

# Whether each unit is enabled and runs.
units() {
    for unit in uncore-trace uncore-trace-upload; do
        say "$unit $(systemctl is-enabled $unit 2>/dev/null | grep . || echo unknown) $(systemctl is-active $unit)"
    done
}

pid() { systemctl show -P MainPID uncore-trace; }

# Whether the program that runs is the one that the step before has left.
restarted() { if [ "$(pid)" != "$before" ]; then say restarted; else say runs on; fi; }

# Recordings that are finished, the configuration and what a trigger has kept.
finished() {
    find /var/lib/uncore-trace/rollup /var/lib/uncore-trace/ring/kept -name '*.parquet' -not -path '*.partial*'
}

remember() {
    finished | grep -q /rollup/ && say there is a roll-up
    finished | grep -q /kept/ && say there is a kept recording
    finished | xargs sha256sum > /digests
    before=$(pid)
}

kept() {
    sha256sum --quiet --check /digests && say the data are kept
    cmp -s /config "$1" && say the configuration is kept
}

# Configures, enables and starts the recorder, and lets it keep a recording and finish a roll-up.
use() {
    cp /config /etc/uncore-trace/agent.toml
    systemctl enable --quiet --now uncore-trace && say the agent is ready
    sleep 10
    systemctl kill --signal=USR1 --kill-who=main uncore-trace
    sleep 6
    say "user $(echo $(ps -o user:20= -p $(pid)))"
    say "capabilities $(sed -n 's/^CapEff:\t//p' /proc/$(pid)/status)"
    systemctl reload uncore-trace && sleep 2
    systemctl restart uncore-trace && sleep 5
    units
    remember
}

echo 2 > /proc/sys/kernel/perf_event_paranoid
export DEBIAN_FRONTEND=noninteractive

step='deb, installed'
dpkg --install /packages/old.deb >/log 2>&1 || { cat /log; say failed; }
units
use

step='deb, an upload'
mkdir /var/lib/uncore-trace/bucket
chown uncore-trace: /var/lib/uncore-trace/bucket
systemctl set-environment UNCORE_TRACE_LOG=debug
systemctl start uncore-trace-upload
systemctl unset-environment UNCORE_TRACE_LOG
sent() { find /var/lib/uncore-trace/bucket -name '*.parquet' | grep -q .; }
for second in $(seq 60); do sent && break; sleep 1; done
sent && say sent
say "$(journalctl --no-pager -o cat -u uncore-trace-upload | grep -o 'confined: .*')"
systemctl stop uncore-trace-upload
say "ended $(systemctl show -P Result uncore-trace-upload)"

step='deb, upgraded'
dpkg --force-confold --install /packages/new.deb >/log 2>&1 || { cat /log; say failed; }
say "version $(dpkg-query --show --showformat='${Version}' uncore-trace)"
units
restarted
kept /etc/uncore-trace/agent.toml
[ -e /etc/uncore-trace/agent.toml.dpkg-dist ] && say the new configuration is beside it

step='deb, upgraded while stopped'
systemctl stop uncore-trace
say "ended $(systemctl show -P Result uncore-trace)"
dpkg --force-confold --install /packages/new.deb >/log 2>&1 || { cat /log; say failed; }
units

step='deb, removed'
systemctl start uncore-trace
dpkg --remove uncore-trace >/log 2>&1 || { cat /log; say failed; }
units
pgrep -x uncore-trace >/dev/null && say it still runs
kept /etc/uncore-trace/agent.toml

step='deb, installed again'
dpkg --install /packages/new.deb >/log 2>&1 || { cat /log; say failed; }
systemctl start uncore-trace && say the agent is ready
kept /etc/uncore-trace/agent.toml

step='deb, purged'
dpkg --purge uncore-trace >/log 2>&1 || { cat /log; say failed; }
pgrep -x uncore-trace >/dev/null && say it still runs
units=/etc/systemd/system
for left in /etc/uncore-trace /var/lib/uncore-trace $units/*/uncore-trace* $units/uncore-trace*; do
    [ -e "$left" -o -L "$left" ] && say "left $left"
done
systemctl daemon-reload

step='rpm, installed'
rpm --install --nodeps /packages/old.rpm >/log 2>&1 || { cat /log; say failed; }
units
use

step='rpm, upgraded'
rpm --upgrade --nodeps /packages/new.rpm >/log 2>&1 || { cat /log; say failed; }
say "version $(rpm --query --queryformat '%{VERSION}' uncore-trace 2>/dev/null)"
units
restarted
kept /etc/uncore-trace/agent.toml
[ -e /etc/uncore-trace/agent.toml.rpmnew ] && say the new configuration is beside it

step='rpm, removed'
rpm --erase --nodeps uncore-trace >/log 2>&1 || { cat /log; say failed; }
units
pgrep -x uncore-trace >/dev/null && say it still runs
kept /etc/uncore-trace/agent.toml.rpmsave

journalctl --no-pager -o cat -u uncore-trace -u uncore-trace-upload
echo uncore-trace check: done
systemctl poweroff --force --force
