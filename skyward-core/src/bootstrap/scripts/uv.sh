# Gets uv: the machine's own, or the pinned one from the package index, through the pip of the machine's Python.
# The lines before this one set: check.
if find_uv; then
    echo "uv is here: $uv"
    exit
fi
if [ -n "$interpreter" ] && [ -z "$check" ] && "$interpreter" -c 'import msgspec' 2>/dev/null; then
    echo "uv is not needed"
    exit
fi
mkdir -p "$cache/uv"
alone "$cache/uv/.lock"
if find_uv; then
    exit
fi
python3=$(command -v python3 || command -v python || true)
if [ -z "$python3" ]; then
    echo "error: there is neither uv nor python3 on this machine" >&2
    exit 1
fi
new=$(mktemp -d "$cache/uv/.new-XXXXXX")
trap 'rm -rf "$new"' EXIT
cat >"$new/uv.txt"
export PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_REQUIRE_VIRTUALENV=0
unset PIP_USER PIP_TARGET PIP_PREFIX
pip="$python3 -m pip"
if ! $pip --version >/dev/null 2>&1; then
    if ! "$python3" -m venv "$new/venv" >/dev/null 2>&1; then
        echo "error: $python3 has neither pip nor venv, and uv cannot be obtained without one of them" >&2
        exit 1
    fi
    pip="$new/venv/bin/python -m pip"
fi
echo "obtaining uv $uv_version"
$pip install --quiet --no-input --no-deps --only-binary :all: --require-hashes --target "$new/uv" -r "$new/uv.txt"
"$new/uv/bin/uv" --version
rm -rf "$cache/uv/$uv_version-$arch"
mv "$new/uv" "$cache/uv/$uv_version-$arch"
