# Downloads uv's wheel from the package index with curl, wget or python3. Runs on machines, and on
# the client's host for machines that cannot. Earlier lines set: uv_version arch.

can_fetch() {
    command -v curl >/dev/null || command -v wget >/dev/null || command -v python3 >/dev/null
}

# Downloads an address into a file. Returns 22 when the server refuses, 1 when no server responds. A
# password in the address is in no argument, which others could read, and in no output.
get() {
    {
        { fetch "$@" 2>&1 >&3 || echo $? >"$2.failed"; } | sed 's#://[^/@ ]*@#://#g' >&2
    } 3>&1
    [ ! -e "$2.failed" ] || return "$(cat "$2.failed")"
}

fetch() {
    if command -v curl >/dev/null; then
        printf 'url = "%s"\n' "$1" |
            curl -fsSL --retry 2 --connect-timeout 20 --speed-limit 1000 --speed-time 60 ${SSL_CERT_FILE:+--cacert "$SSL_CERT_FILE"} -K - -o "$2" ||
            refused $? 22
    elif command -v wget >/dev/null; then
        printf '%s\n' "$1" | wget -nv --no-http-keep-alive --tries 2 --timeout 60 ${SSL_CERT_FILE:+--ca-certificate="$SSL_CERT_FILE"} -i - -O "$2" ||
            refused $? 6 8
    else
        printf '%s' "$1" | python3 -c "$get" "$2" || refused $? 22
    fi
}

# Turns a tool's status into that of `get`. The other arguments are the tool's statuses of a
# refusal.
refused() {
    status=$1
    shift
    for one in "$@"; do
        [ "$status" != "$one" ] || return 22
    done
    return 1
}

get='
import base64, shutil, sys, urllib.error, urllib.parse, urllib.request
address = urllib.parse.urlsplit(sys.stdin.read())
user, at, host = address.netloc.rpartition("@")
request = urllib.request.Request(address._replace(netloc=host).geturl())
if at:
    name = urllib.parse.unquote(user).encode()
    request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(name).decode())
try:
    with urllib.request.urlopen(request, timeout=60) as answer, open(sys.argv[1], "wb") as file:
        shutil.copyfileobj(answer, file)
except OSError as error:
    print(f"error: cannot fetch {request.full_url}: {error}", file=sys.stderr)
    sys.exit(22 if isinstance(error, urllib.error.HTTPError) else 1)
'

# Downloads the wheel into a file, with the status of `get`. Prefers the wheel that needs no library
# of the machine.
fetch_wheel() {
    base=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-${PIP_INDEX_URL:-https://pypi.org/simple}}}
    case $base in
        http*://* | file://*) ;;
        # uv accepts a name in front of the address.
        *=*) base=${base#*=} ;;
    esac
    base=${base%/}/uv/
    get "$base" "$1.index" || return
    names=$(tr "\"'" '\n\n' <"$1.index" | grep -E "uv-$uv_version-py3-none-[^/]*_$arch\.whl(#|\$)" || true)
    link=$(printf '%s\n' "$names" | grep musllinux | head -n 1 || true)
    [ -n "$link" ] || link=$(printf '%s\n' "$names" | grep manylinux | head -n 1 || true)
    if [ -z "$link" ]; then
        echo "error: the index has no uv $uv_version for $arch" >&2
        return 22
    fi
    link=${link%%#*}
    host=${base#*://}
    host=${host%%/*}
    scheme=${base%%://*}
    case $link in
        *://*) [ "${link#*://"${host#*@}"/}" = "$link" ] || link=$scheme://$host/${link#*://*/} ;;
        /*) link=$scheme://$host$link ;;
        *) link=$base$link ;;
    esac
    get "$link" "$1" || return
    rm -f "$1.index"
}
