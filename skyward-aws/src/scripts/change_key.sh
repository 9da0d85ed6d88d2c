# Makes the SSH server use the new key and no other. Existing connections stay.
as_root '
    umask 077
    made=/etc/ssh/skyward_host_key
    used=/etc/ssh/ssh_host_ed25519_key
    cp "$made" "$used.new"
    mv "$used.new" "$used"
    cp "$made.pub" "$used.pub.new"
    chmod 644 "$used.pub.new"
    mv "$used.pub.new" "$used.pub"
    rm -f /etc/ssh/ssh_host_rsa_key* /etc/ssh/ssh_host_ecdsa_key* /etc/ssh/ssh_host_dsa_key*
    # Debian and Ubuntu call it ssh, others sshd.
    systemctl reload ssh 2>/dev/null || systemctl reload sshd
'
