# Puts a file: from standard input, under a temporary name, and then in its place. Variables: path
# mode digest size.
# The client reads its words.
export LC_ALL=C
sum() {
    if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c 1-64
}
if [ -f "$path" ] && [ "$(wc -c <"$path")" -eq "$size" ] && [ "$(sum <"$path")" = "$digest" ]; then
    chmod "$mode" "$path"
    exit 0
fi
folder=${path%/*}
mkdir -p -- "${folder:-/}"
new=$folder/.${path##*/}.$$.new
trap 'rm -f -- "$new"' EXIT
trap 'exit 1' HUP INT TERM
# Writing to a client that is gone is an error, not a signal that ends this script.
trap '' PIPE
umask 077
echo skyward-send
head -c "$size" >"$new"
if [ "$(sum <"$new")" != "$digest" ]; then
    echo "what arrived is not what was sent" >&2
    exit 1
fi
chmod "$mode" "$new"
mv -f -- "$new" "$path"
