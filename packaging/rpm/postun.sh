if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" != 0 ]; then
        systemctl try-restart uncore-trace.service uncore-trace-upload.service || :
    fi
fi
exit 0
