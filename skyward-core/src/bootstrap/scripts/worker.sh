# Unpacks and compiles the worker package. The lines before this one set: unpack.
unset PYTHONHOME PYTHONPATH
"$python" -c "$unpack" "$worker"
: >"$worker/.ready-$key-$arch"
