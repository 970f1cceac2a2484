if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" != 0 ]; then
        systemctl try-restart uncore-trace.service uncore-trace-upload.service || :
    fi
fi
# Removes the directories of this package, which its file list cannot own, if they are empty.
if [ "$1" = 0 ]; then
    rmdir /usr/share/uncore-trace /usr/share/doc/uncore-trace /usr/share/licenses/uncore-trace \
        /etc/uncore-trace 2>/dev/null || :
fi
exit 0
