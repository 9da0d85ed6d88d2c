# Looks for Debian packages; installs none.
if ! command -v dpkg-query >/dev/null; then
    echo "error: the image asks for Debian packages, and this machine has no dpkg-query" >&2
    exit 1
fi
missing=$(packages_missing)
if [ -n "$missing" ]; then
    echo "error: not installed:$missing" >&2
    exit 1
fi
