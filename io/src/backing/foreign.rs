//! Images of other formats, recognised by their first bytes. Served raw, their metadata would be overwritten.

use std::path::Path;

/// Bytes at the start of an image that decide.
pub const HEAD_BYTES: usize = 4096;

/// The format's name as QEMU spells it, or none for raw.
pub fn format_of(head: &[u8]) -> Option<&'static str> {
    const AT_START: [(&[u8], &str); 8] = [
        (b"QFI\xfb", "qcow2"),
        (b"KDMV", "vmdk"),
        (b"COWD", "vmdk"),
        (b"# Disk DescriptorFile", "vmdk"),
        (b"vhdxfile", "vhdx"),
        (b"conectix", "vpc"),
        (b"QED\0", "qed"),
        (b"LUKS\xba\xbe", "luks"),
    ];
    if let Some((_, name)) = AT_START.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(name);
    }
    (head.get(64..68) == Some(&[0x7f, 0x10, 0xda, 0xbe])).then_some("vdi")
}

/// The command that exports such an image's content as NBD on a unix socket.
pub fn export_line(format: &str, path: &Path) -> String {
    let name = path.file_stem().map_or_else(|| "image".into(), |name| name.to_string_lossy());
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let socket = format!("/run/{name}.sock");
    let quoted = shell_quoted(&path.to_string_lossy());
    if format == "luks" {
        // In --image-opts a comma is doubled, so that it does not end the option.
        let option = shell_quoted(&format!(
            "driver=luks,key-secret=key,file.filename={}",
            path.to_string_lossy().replace(',', ",,")
        ));
        return format!(
            "qemu-nbd --persistent --shared=8 --cache=none --socket={socket} --object secret,id=key,file=KEYFILE \
             --image-opts {option}"
        );
    }
    format!("qemu-nbd --persistent --shared=8 --cache=none --socket={socket} --format={format} {quoted}")
}

fn shell_quoted(text: &str) -> String {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./,=".contains(c)) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_heads_are_known_and_others_are_raw() {
        for (head, name) in [
            (b"QFI\xfb\0\0\0\x03".as_slice(), "qcow2"),
            (b"KDMV\x01", "vmdk"),
            (b"# Disk DescriptorFile\nversion=1", "vmdk"),
            (b"vhdxfile", "vhdx"),
            (b"LUKS\xba\xbe\0\x02", "luks"),
        ] {
            assert_eq!(format_of(head), Some(name));
        }
        let mut vdi = vec![0u8; 512];
        vdi[64..68].copy_from_slice(&0xbeda_107fu32.to_le_bytes());
        assert_eq!(format_of(&vdi), Some("vdi"));
        for raw in [b"".as_slice(), b"QFI", &[0; 512], b"\xeb\x63\x90 a boot sector"] {
            assert_eq!(format_of(raw), None);
        }
    }

    #[test]
    fn the_line_survives_a_shell() {
        let line = export_line("qcow2", Path::new("/srv/it's a vm.qcow2"));
        assert!(line.ends_with(r"--format=qcow2 '/srv/it'\''s a vm.qcow2'"), "{line}");
        assert!(line.contains("--socket=/run/it-s-a-vm.sock"), "{line}");
        assert!(export_line("luks", Path::new("/a,b")).contains("file.filename=/a,,b"));
    }
}
