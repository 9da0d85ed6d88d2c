# Unpacks the image's files into the working folder, and removes their archive. An earlier line
# sets: folder.
mkdir -p "$folder/work"
tar -x -p -o -f "$folder/files.tar" -C "$folder/work"
rm -f "$folder/files.tar"
