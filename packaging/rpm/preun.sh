# $1 is what remains: 0 is a removal, 1 an upgrade.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now uncore-trace.service uncore-trace-upload.service || :
fi
exit 0
