//! The structs and constants here are those of the installed headers: a C program prints sizes,
//! offsets and values, and they are compared one by one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unsafe_code)]

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

use ucx_sys::*;

/// C expressions and what they must be.
#[derive(Default)]
struct Expectations(Vec<(String, i128)>);

macro_rules! layout {
    ($out:ident, $($ty:ident { $($field:ident $(=> $c_field:literal)?),* $(,)? })*) => {$(
        $out.expect(format!("sizeof({})", stringify!($ty)), size_of::<$ty>() as i128);
        $(
            let c_field = [$($c_field,)? stringify!($field)][0];
            let c = format!("offsetof({}, {c_field})", stringify!($ty));
            $out.expect(c, offset_of!($ty, $field) as i128);
        )*
    )*};
}

macro_rules! values {
    ($out:ident, $($name:ident),* $(,)?) => {
        $($out.expect(stringify!($name).into(), $name as i128);)*
    };
}

impl Expectations {
    fn expect(&mut self, c: String, value: i128) {
        self.0.push((c, value));
    }
}

fn structs(out: &mut Expectations) {
    layout! { out,
        ucp_params_t {
            field_mask, features, request_size, request_init, request_cleanup, tag_sender_mask,
            mt_workers_shared, estimated_num_eps, estimated_num_ppn, name,
        }
        ucs_cpu_set_t { ucs_bits }
        ucp_worker_params_t {
            field_mask, thread_mode, cpu_mask, events, user_data, event_fd, flags, name,
            am_alignment, client_id,
        }
        ucs_sock_addr_t { addr, addrlen }
        ucp_listener_accept_handler_t { cb, arg }
        ucp_listener_conn_handler_t { cb, arg }
        ucp_listener_params_t { field_mask, sockaddr, accept_handler, conn_handler }
        ucp_listener_attr_t { field_mask, sockaddr }
        ucp_err_handler_t { cb, arg }
        ucp_ep_params_t {
            field_mask, address, err_mode, err_handler, user_data, flags, sockaddr, conn_request,
            name, local_sockaddr,
        }
        ucp_request_param_t {
            op_attr_mask, flags, request, cb_send => "cb.send", datatype, user_data, reply_buffer,
            memory_type, recv_info, memh,
        }
        ucp_am_handler_param_t { field_mask, id, flags, cb, arg }
        ucp_am_recv_param_t { recv_attr, reply_ep }
    }
    out.expect(
        "sizeof(struct sockaddr_storage)".into(),
        size_of::<sockaddr_storage>() as i128,
    );
    let align = align_of::<sockaddr_storage>() as i128;
    out.expect("_Alignof(struct sockaddr_storage)".into(), align);
    out.expect(
        "sizeof(ucs_status_t)".into(),
        size_of::<ucs_status_t>() as i128,
    );
    out.expect("sizeof(ucs_thread_mode_t)".into(), 4);
    out.expect("sizeof(ucp_err_handling_mode_t)".into(), 4);
}

fn constants(out: &mut Expectations) {
    values! { out,
        UCS_OK, UCS_INPROGRESS, UCS_ERR_NO_MEMORY, UCS_ERR_INVALID_PARAM, UCS_ERR_UNREACHABLE,
        UCS_ERR_NO_ELEM, UCS_ERR_BUSY, UCS_ERR_CANCELED, UCS_ERR_TIMED_OUT, UCS_ERR_REJECTED,
        UCS_ERR_NOT_CONNECTED, UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_LAST,
        UCS_THREAD_MODE_SINGLE, UCP_PARAM_FIELD_FEATURES, UCP_PARAM_FIELD_NAME,
        UCP_FEATURE_WAKEUP, UCP_FEATURE_AM, UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR, UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        UCP_LISTENER_ATTR_FIELD_SOCKADDR, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        UCP_EP_PARAM_FIELD_ERR_HANDLER, UCP_EP_PARAM_FIELD_SOCK_ADDR, UCP_EP_PARAM_FIELD_FLAGS,
        UCP_EP_PARAM_FIELD_CONN_REQUEST, UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        UCP_ERR_HANDLING_MODE_PEER, UCP_EP_CLOSE_FLAG_FORCE, UCP_OP_ATTR_FIELD_CALLBACK,
        UCP_OP_ATTR_FIELD_USER_DATA, UCP_OP_ATTR_FIELD_FLAGS, UCP_AM_SEND_FLAG_REPLY,
        UCP_AM_SEND_FLAG_EAGER, UCP_AM_FLAG_WHOLE_MSG, UCP_AM_HANDLER_PARAM_FIELD_ID,
        UCP_AM_HANDLER_PARAM_FIELD_FLAGS, UCP_AM_HANDLER_PARAM_FIELD_CB,
        UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_RECV_ATTR_FIELD_REPLY_EP,
        UCP_AM_RECV_ATTR_FLAG_RNDV,
    }
}

#[test]
fn structs_and_constants_agree_with_the_installed_headers() {
    let mut expected = Expectations::default();
    structs(&mut expected);
    constants(&mut expected);
    let mut program = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    program += "#include <ucp/api/ucp.h>\nint main(void) {\n";
    for (c, _) in &expected.0 {
        writeln!(program, "printf(\"%lld\\n\", (long long)({c}));").unwrap();
    }
    program += "return 0;\n}\n";

    let dir = tempfile::tempdir().unwrap();
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, program).unwrap();
    let includes = match std::env::var("UCX_DIR") {
        Ok(dir) => vec![format!("{dir}/include").into()],
        Err(_) => {
            pkg_config::Config::new()
                .cargo_metadata(false)
                .probe("ucx")
                .unwrap()
                .include_paths
        }
    };
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    for include in includes {
        cc.arg("-I").arg(include);
    }
    assert!(
        cc.arg(&source)
            .arg("-o")
            .arg(&binary)
            .status()
            .unwrap()
            .success()
    );
    let output = Command::new(&binary).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<i128> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(printed.len(), expected.0.len());
    for ((c, ours), theirs) in expected.0.iter().zip(printed) {
        assert_eq!(*ours, theirs, "{c}");
    }
}

#[test]
fn the_loaded_library_answers_and_names_unknown_statuses() {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: three valid out pointers; the status string is valid for any code.
    let text = unsafe {
        ucp_get_version(&raw mut major, &raw mut minor, &raw mut release);
        std::ffi::CStr::from_ptr(ucs_status_string(-99))
    };
    assert!((major, minor) >= (1, 13), "{major}.{minor}.{release}");
    assert!(!text.is_empty());
}

#[test]
fn status_pointers_are_told_apart() {
    let error = UCS_ERR_CONNECTION_RESET as isize as ucs_status_ptr_t;
    assert!(ucs_ptr_is_err(error) && !ucs_ptr_is_ptr(error));
    assert_eq!(ucs_ptr_raw_status(error), UCS_ERR_CONNECTION_RESET);
    assert!(!ucs_ptr_is_err(std::ptr::null_mut()) && !ucs_ptr_is_ptr(std::ptr::null_mut()));
    let mut byte = 0u8;
    assert!(ucs_ptr_is_ptr((&raw mut byte).cast()));
}
