from corral.guest import FrameKind, FrameReader, decode_value, encode_frame, encode_value

nonce = bytes(range(16))

value = encode_value({"data": b"\x01\x02", "n": 2**53})
frame = encode_frame(FrameKind.REPLY, b"[1,true,%b]" % value.text, nonce, tagged=value.tagged)
print(frame[:4].hex(), frame[4:5].hex(), frame[5:6].hex(), frame[6:22].hex())
print(frame[22:].decode())

call = bytes.fromhex("00000023 11 00 000102030405060708090a0b0c0d0e0f") + b'[1,"add",{"a":1}]'
reader = FrameReader(nonce, {FrameKind.CALL: 1000})
for part in (call[:10], call[10:]):
    for each in reader.feed(part):
        print(FrameKind(each.kind).name, decode_value(each.payload, tagged=each.tagged))
