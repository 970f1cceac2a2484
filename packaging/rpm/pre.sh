# Creates the user of the units. Later versions of rpm create it from the sysusers file.
getent group uncore-trace >/dev/null || groupadd --system uncore-trace
getent passwd uncore-trace >/dev/null || useradd --system --gid uncore-trace --no-create-home \
    --home-dir /var/lib/uncore-trace --shell /sbin/nologin --comment "uncore-trace recorder" uncore-trace
exit 0
