import java.util.List;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.security.acl.AccessControlEntry;
import org.apache.fluss.security.acl.AccessControlEntryFilter;
import org.apache.fluss.security.acl.AclBinding;
import org.apache.fluss.security.acl.AclBindingFilter;
import org.apache.fluss.security.acl.FlussPrincipal;
import org.apache.fluss.security.acl.OperationType;
import org.apache.fluss.security.acl.PermissionType;
import org.apache.fluss.security.acl.Resource;
import org.apache.fluss.security.acl.ResourceFilter;
import org.apache.fluss.security.acl.ResourceType;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** Adds and removes the ACLs of a user. A request names the operation, the type and the name of the resource. */
final class Acls {
    private static final String ANY_HOST = "*";

    private Acls() {}

    static void allow(Admin admin, JsonNode request) throws Exception {
        AccessControlEntry entry =
                new AccessControlEntry(user(request), ANY_HOST, operation(request), PermissionType.ALLOW);
        admin.createAcls(List.of(new AclBinding(resource(request), entry))).all().get();
    }

    static void forbid(Admin admin, JsonNode request) throws Exception {
        Resource resource = resource(request);
        AclBindingFilter filter =
                new AclBindingFilter(
                        new ResourceFilter(resource.getType(), resource.getName()),
                        new AccessControlEntryFilter(
                                user(request), ANY_HOST, operation(request), PermissionType.ALLOW));
        admin.dropAcls(List.of(filter)).all().get();
    }

    private static Resource resource(JsonNode request) {
        ResourceType type = ResourceType.valueOf(request.get("resource_type").asText());
        return type == ResourceType.CLUSTER ? Resource.cluster() : new Resource(type, request.get("resource").asText());
    }

    private static OperationType operation(JsonNode request) {
        return OperationType.valueOf(request.get("operation").asText());
    }

    private static FlussPrincipal user(JsonNode request) {
        return new FlussPrincipal(request.get("user").asText(), "User");
    }
}
