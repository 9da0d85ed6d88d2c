# Gets an interpreter by apt-get where the machine has none. Where that cannot be, it is left to uv.
# The lines before this one set: python_request.
if find_python3; then
    exit
elif find_uv && "$uv" python find --no-project "$python_request" >/dev/null 2>&1; then
    # One that uv keeps.
    exit
fi
why=$(why_not_apt)
if [ -n "$why" ]; then
    echo "there is no Python, and none can be installed by apt-get: $why"
    exit 0
fi
begin_apt
echo "installing python3"
authorities=ca-certificates
# Those that somebody has put there are not written over.
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || authorities=
apt_install python3 $authorities
