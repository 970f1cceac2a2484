# $1 is the number of versions that remain installed: 0 for a removal, 1 for an upgrade.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now uncore-trace.service uncore-trace-upload.service || :
fi
exit 0
