# Connects standard input and output with a Unix socket, by a program that the host has. Earlier
# text sets: socket bridge.
if [ ! -S "$socket" ]; then
    echo "skyward-refused there is no such socket"
    exit 1
fi
for python in python3 "${SKYWARD_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skyward}"/envs/*/bin/python; do
    if "$python" -I -S -c "" </dev/null >/dev/null 2>&1; then exec "$python" -I -S -c "$bridge" "$socket"; fi
done
if command -v socat >/dev/null 2>&1; then
    echo skyward-open
    exec socat - "UNIX-CONNECT:$socket"
fi
if nc -h 2>&1 </dev/null | grep -q -e "-[A-Za-z]*U"; then
    echo skyward-open
    exec nc -U "$socket"
fi
echo skyward-none
exit 1
