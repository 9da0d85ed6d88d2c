# Installs an interpreter by apt-get where the machine has none. Where that is impossible, uv has to
# get one. Earlier lines set: python_request.
if find_python3; then
    exit
elif find_uv && "$uv" python find --no-project "$python_request" >/dev/null 2>&1; then
    # An interpreter of uv's own.
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
