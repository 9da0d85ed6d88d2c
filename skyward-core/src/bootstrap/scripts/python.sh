# Installs an interpreter by apt-get where the machine has none. Where that is impossible, uv has to
# get one. Earlier lines set: python_request.

# Whether uv has an interpreter of its own. Settings of a project above do not apply in a folder with
# a file of settings.
uv_has_python() (
    apart=$(mktemp -d)
    trap 'rm -rf "$apart"' EXIT
    cd "$apart"
    : >uv.toml
    "$uv" python find --no-project "$python_request" >/dev/null 2>&1
)

if find_python3 || { find_uv && uv_has_python; }; then
    exit
fi
why=$(why_not_apt)
if [ -n "$why" ]; then
    echo "this machine has no Python, and apt-get cannot install one: $why"
    exit 0
fi
begin_apt
echo "installing python3"
authorities=ca-certificates
# Certificates that somebody has put there are not overwritten.
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || authorities=
apt_install python3 $authorities
