# Gets uv: the machine's own, or the pinned one from the package index by curl, wget or python3, or
# else from the client, which puts it there. Earlier lines set: check.
if find_uv; then
    echo "using uv at $uv"
    exit
fi
if [ -n "$interpreter" ] && [ -z "$check" ] && "$interpreter" -c 'import msgspec' 2>/dev/null; then
    echo "uv is not needed"
    exit
fi
make_cache
mkdir -p "$cache/uv"
alone "$cache/uv/.lock"
if find_uv; then
    exit
fi
new=$(mktemp -d "$cache/uv/.new-XXXXXX")
trap 'tell_state; rm -rf "$new"' EXIT
cat >"$new/uv.txt"
wheel=$folder/uv.whl

# A number in a file, lowest byte first.
number() {
    set -- $(od -An -v -tu1 -j "$2" -N "$3" "$1")
    echo $(($1 + ${2:-0} * 256 + ${3:-0} * 65536 + ${4:-0} * 16777216))
}

part() {
    tail -c +$(($2 + 1)) "$1" | head -c "$3"
}

# Extracts one file of a zip archive, on a machine without a tool for that: puts the compressed data
# between a head and the checksums that gzip expects.
unzipped() {
    end=$(($(wc -c <"$1") - 22))
    left=$(number "$1" $((end + 10)) 2)
    at=$(number "$1" $((end + 16)) 4)
    while [ "$left" -gt 0 ]; do
        length=$(number "$1" $((at + 28)) 2)
        if [ "$(part "$1" $((at + 46)) "$length")" = "$2" ]; then
            begin=$(number "$1" $((at + 42)) 4)
            begin=$((begin + 30 + $(number "$1" $((begin + 26)) 2) + $(number "$1" $((begin + 28)) 2)))
            {
                printf '\037\213\010\0\0\0\0\0\0\003'
                part "$1" "$begin" "$(number "$1" $((at + 20)) 4)"
                part "$1" $((at + 16)) 4
                part "$1" $((at + 24)) 4
            } | gzip -dc
            return
        fi
        at=$((at + 46 + length + $(number "$1" $((at + 30)) 2) + $(number "$1" $((at + 32)) 2)))
        left=$((left - 1))
    done
    echo "error: the wheel has no $2" >&2
    return 1
}

# Packages come from the image's index, whose address may contain a password.
[ -z "${SKYWARD_INDEX:-}" ] || export UV_DEFAULT_INDEX="$SKYWARD_INDEX"
if [ ! -e "$wheel" ]; then
    if ! can_fetch; then
        echo "this machine has no python3, curl or wget to download uv; requesting it from the client"
        echo "skyward-fetch $arch"
        exit 75
    fi
    echo "obtaining uv $uv_version"
    wheel=$new/uv.whl
    status=0
    fetch_wheel "$wheel" || status=$?
    if [ "$status" = 1 ]; then
        echo "this machine cannot reach the index; requesting uv from the client"
        echo "skyward-unreached index"
        echo "skyward-fetch $arch"
        exit 75
    fi
    [ "$status" = 0 ] || exit 1
fi
sum=$(sha256sum "$wheel")
if ! grep -q "sha256:${sum%% *}" "$new/uv.txt"; then
    rm -f "$wheel"
    echo "error: uv's wheel does not match the hashes of the pinned one: hash mismatch" >&2
    exit 1
fi
mkdir -p "$new/uv/bin"
unzipped "$wheel" "uv-$uv_version.data/scripts/uv" >"$new/uv/bin/uv"
chmod 755 "$new/uv/bin/uv"
rm -f "$wheel"
"$new/uv/bin/uv" --version
rm -rf "$cache/uv/$uv_version-$arch"
mv "$new/uv" "$cache/uv/$uv_version-$arch"
