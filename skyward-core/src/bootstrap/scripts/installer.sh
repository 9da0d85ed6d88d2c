# uv and its settings. The lines before this one set: uv_version certificates.
own_uv=$cache/uv/$uv_version-$arch/bin/uv

# Whether this uv is 0.7 or newer.
fits() {
    version=$("$1" --version 2>/dev/null) || return 1
    version=${version#uv }
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    case $major,$minor in
        *[!0-9,]* | ,* | *,) return 1 ;;
        0,*) [ "$minor" -ge 7 ] ;;
    esac
}

find_uv() {
    uv=$(command -v uv || true)
    [ -n "$uv" ] && fits "$uv" && return
    uv=$own_uv
    [ -x "$uv" ]
}

# The settings that pip has on this machine hold for uv too, where uv has none of its own.
use_settings_of_pip() {
    if [ -z "${SSL_CERT_FILE:-}" ]; then
        for bundle in "${PIP_CERT:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}"; do
            if [ -f "$bundle" ]; then
                export SSL_CERT_FILE="$bundle"
                break
            fi
        done
    fi
    if [ -n "${PIP_INDEX_URL:-}" ] && [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
        export UV_DEFAULT_INDEX="$PIP_INDEX_URL"
    fi
    unset UV_SYSTEM_PYTHON UV_PYTHON UV_TARGET UV_PROJECT_ENVIRONMENT PYTHONHOME
}

# The image's certificate authorities beside those that the machine trusts.
trust_certificates() {
    [ -n "$certificates" ] || return 0
    for bundle in "${SSL_CERT_FILE:-}" "${PIP_CERT:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem /dev/null; do
        [ ! -f "$bundle" ] && [ "$bundle" != /dev/null ] || break
    done
    cat "$bundle" "$certificates" >"$certificates.all"
    export SSL_CERT_FILE="$certificates.all" PIP_CERT="$certificates.all"
}

use_settings_of_pip
trust_certificates
