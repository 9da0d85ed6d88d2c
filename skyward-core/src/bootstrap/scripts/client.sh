# On the client's host: downloads uv's wheel once, for a machine that cannot. Earlier lines set:
# uv_version arch.
cache=${SKYWARD_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skyward}/uv
wheel=$cache/uv-$uv_version-$arch.whl
if [ ! -e "$wheel" ]; then
    [ -z "${SKYWARD_INDEX:-}" ] || export UV_DEFAULT_INDEX="$SKYWARD_INDEX"
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/.new-XXXXXX")
    trap 'rm -rf "$new"' EXIT
    if ! can_fetch; then
        echo "error: this host has neither curl nor wget nor python3" >&2
        exit 1
    fi
    fetch_wheel "$new/uv.whl"
    mv "$new/uv.whl" "$wheel"
fi
echo "skyward-wheel $wheel"
