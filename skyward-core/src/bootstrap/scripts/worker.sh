# Unpacks and compiles the worker package. Earlier lines set: unpack.
unset PYTHONHOME PYTHONPATH
"$python" -c "$unpack" "$worker"
: >"$worker/.ready-$key-$arch"
