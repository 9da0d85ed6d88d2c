# Installs the image's Debian packages where that is allowed.
missing=$(packages_missing)
[ -n "$missing" ] || exit 0
why=$(why_not_apt)
if [ -n "$why" ]; then
    echo "error: not installed:$missing; $why" >&2
    exit 1
fi
begin_apt
echo "installing$missing"
apt_install $missing
