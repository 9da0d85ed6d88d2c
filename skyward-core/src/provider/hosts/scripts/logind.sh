# Prints systemd-logind's settings for this user's processes at the end of a session, as its files
# have them; nothing outside a session. Reads files below folder $1, for a process with the control
# groups in file $2.
tell_logind() {
    in_session=
    while read -r group; do
        case $group in */session-*.scope*) in_session=1 ;; esac
    done <"$2"
    [ -n "$in_session" ] || return 0
    echo "skyward-user ${LOGNAME:-$(id -un)}"
    # The first main file, and all drop-in files.
    for file in "$1/etc/systemd" "$1/run/systemd" "$1/usr/local/lib/systemd" "$1/usr/lib/systemd"; do
        if [ -f "$file/logind.conf" ]; then
            set -- "$1" "$file/logind.conf"
            break
        fi
    done
    grep -HsE '^[[:space:]]*Kill[A-Za-z]*[[:space:]]*=' "${2:-/dev/null}" "$1"/*/systemd/logind.conf.d/*.conf "$1"/usr/lib/systemd/logind.conf.d/*.conf \
        "$1"/usr/local/lib/systemd/logind.conf.d/*.conf | sed 's/^/skyward-logind /' || :
}
